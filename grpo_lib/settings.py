"""`RunSettings`: every parameter of a run, validated once, before anything is written or started.

Field names equal the parameter names of the training notebook (a test compares them with papermill's view). All
faults are reported together, in Arabic and English. Secrets are never parameters: they come from the environment.
"""

from __future__ import annotations

import json
import re
import secrets
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from grpo_lib.errors import WrongInput, isolate
from grpo_lib.faults import describe

TEACHING_MODEL = "teaching"
DATA_CLASSES = ("synthetic", "public", "internal", "restricted", "secret", "top_secret")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_RUN_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def _field(default: Any, ar: str, en: str, **constraints: Any) -> Any:
    return Field(default, description=en, json_schema_extra={"ar": ar}, **constraints)


def _fault(ar: str, en: str) -> PydanticCustomError:
    return PydanticCustomError("bilingual", "{en}", {"ar": ar, "en": en})


class RunSettings(BaseModel):
    """Parameters of one run. Units are in the descriptions; impossible combinations are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())

    run_id: str = _field(
        "", "معرّف التشغيل؛ إعادة استخدامه تستأنف التشغيل", "run id; the same id resumes the run"
    )
    runs_dir: str = _field("runs", "مجلد التشغيلات", "folder that holds all runs")

    organisation: str = _field("", "الجهة المسؤولة عن التشغيل", "organisation that answers for the run")
    responsible: str = _field("", "صفة الشخص المسؤول", "role of the person who answers for it")
    purpose: str = _field("", "غرض التشغيل", "purpose of the run")
    data_class: Literal["", *DATA_CLASSES] = _field(
        "synthetic", "تصنيف البيانات؛ الفراغ يعني الرفض", "class of the data; empty means deny"
    )
    personal_data: Literal["", "none", "some"] = _field(
        "none",
        "هل توجد بيانات شخصية؛ الفراغ يعني الرفض",
        "whether personal data is present; empty means deny",
    )
    controller: Literal["", "government", "private"] = _field(
        "", "من يملك قرار البيانات: جهة حكومية أو خاصة", "who decides over the data: government or private"
    )
    jurisdictions: str = _field(
        "",
        "حزم القواعد المنطبقة، مفصولة بفواصل، مثل sa,ae-difc",
        "rule packs that apply, comma-separated, such as sa,ae-difc",
    )
    country: str = _field(
        "", "رمز البلد الذي يوجد فيه هذا الجهاز (ISO 3166)", "country of this machine, as declared (ISO 3166)"
    )
    governance_dir: str = _field(
        "governance",
        "مجلد مراجعات الجهة وأدلتها واستثناءاتها ونماذج الأماكن",
        "folder of the organisation's own reviews, evidence, overrides and place forms",
    )
    pii_sample: int = _field(
        0, "عدد الصفوف التي تُفحص؛ 0 يعني كلها", "rows screened for personal data; 0 means all", ge=0
    )
    signing_key: str = _field(
        "operator", "اسم المفتاح الذي يوقّع السجل", "name of the key that signs the ledger"
    )
    retention_until: str = _field(
        "", "تاريخ انتهاء الاحتفاظ YYYY-MM-DD", "date until which the run is kept, YYYY-MM-DD"
    )

    model: str = _field(
        TEACHING_MODEL,
        "النموذج الأساس: teaching أو معرّف في Hub أو مسار محلي",
        "base model: teaching, a Hub id or a local path",
    )
    task: str = _field("arithmetic", "اسم المهمة", "name of the task")
    seed: int = _field(0, "البذرة العشوائية", "random seed", ge=0, le=2**31 - 1)

    canaries: int = _field(
        0,
        "عدد الأسرار المزروعة لقياس الحفظ؛ 0 يعني لا شيء",
        "planted secrets that measure memorisation; 0 means none",
        ge=0,
        le=2500,
    )

    steps: int = _field(60, "عدد خطوات المحسِّن", "optimizer steps", ge=1, le=1_000_000)
    prompts_per_step: int = _field(16, "عدد المجموعات في كل خطوة", "groups per optimizer step", ge=1, le=4096)
    num_generations: int = _field(
        8, "عدد الإكمالات لكل موجِّه (حجم المجموعة)", "completions per prompt (group size)", ge=2, le=256
    )
    learning_rate: float = _field(1e-3, "معدل التعلم", "learning rate", gt=0, le=1)
    lora_rank: int = _field(16, "رتبة LoRA", "LoRA rank", ge=1, le=512)
    lora_alpha: int = _field(32, "معامل ألفا في LoRA", "LoRA alpha", ge=1, le=4096)
    max_new_tokens: int = _field(32, "أقصى طول للإكمال بالرموز", "completion limit in tokens", ge=1, le=32768)
    temperature: float = _field(1.0, "درجة حرارة التوليد", "sampling temperature", gt=0, le=5)
    epsilon: float = _field(0.2, "حد القص الأدنى", "lower clip range", gt=0, lt=1)
    epsilon_high: float = _field(0.28, "حد القص الأعلى", "upper clip range", gt=0, le=10)

    workers: int = _field(2, "عدد عمليات التوليد", "rollout worker processes", ge=1, le=256)
    max_staleness: int = _field(
        2, "أقصى تأخر مسموح بعدد إصدارات السياسة", "bound on staleness, in policy versions", ge=0, le=64
    )
    groups_per_lease: int = _field(
        16, "عدد المجموعات التي يأخذها العامل دفعة واحدة", "groups a worker takes at a time", ge=1, le=4096
    )
    transport: Literal["gloo"] = _field("gloo", "وسيلة النقل", "transport")
    backend: Literal["local"] = _field("local", "مكان تشغيل العمليات", "where the processes run")
    bind: str = _field("127.0.0.1", "عنوان الاستماع", "address the learner listens on")
    port_first: int = _field(29500, "أول منفذ في المدى", "first port of the range", ge=1024, le=65535)
    port_last: int = _field(29599, "آخر منفذ في المدى", "last port of the range", ge=1024, le=65535)
    heartbeat_s: float = _field(
        2.0, "الفترة بين النبضات بالثواني", "seconds between heartbeats", gt=0, le=600
    )
    deadline_s: float = _field(
        60.0,
        "مهلة الصمت قبل اعتبار الطرف مفقودًا بالثواني",
        "seconds of silence before a peer is lost",
        gt=0,
        le=3600,
    )
    max_worker_restarts: int = _field(
        3, "كم مرة يعاد تشغيل عامل سقط", "how often a fallen worker is started again", ge=0, le=100
    )

    device: str = _field(
        "auto", "جهاز المتعلِّم: auto أو cpu أو اسم مسرّع", "learner device: auto, cpu or an accelerator"
    )
    learner_threads: int = _field(1, "خيوط المتعلِّم", "threads of the learner", ge=1, le=256)
    worker_threads: int = _field(1, "خيوط كل عامل", "threads of each worker", ge=1, le=256)

    checkpoint_every: int = _field(10, "خطوات بين نقاط الحفظ", "steps between checkpoints", ge=1)
    snapshot_every: int = _field(
        10, "خطوات بين نسخ المُهايئ المحفوظة للتقييم", "steps between adapters kept for evaluation", ge=1
    )
    eval_questions: int = _field(400, "عدد أسئلة التقييم المحجوزة", "held-out questions", ge=1, le=100_000)
    eval_samples: int = _field(8, "عينات لكل سؤال", "samples per held-out question", ge=1, le=256)

    @field_validator("run_id")
    @classmethod
    def _run_id(cls, value: str) -> str:
        if value and not _RUN_ID.fullmatch(value):
            raise _fault(
                "استخدم حروفًا لاتينية صغيرة وأرقامًا و - _ . فقط، حتى 64 حرفًا",
                "use lower-case Latin letters, digits, '-', '_' and '.', at most 64 characters",
            )
        return value

    @field_validator("country")
    @classmethod
    def _country(cls, value: str) -> str:
        if value and not re.fullmatch(r"[A-Z]{2}", value):
            raise _fault(
                "رمز من حرفين مثل SA أو اتركه فارغًا", "a two-letter code such as SA, or leave it empty"
            )
        return value

    @field_validator("jurisdictions")
    @classmethod
    def _jurisdictions(cls, value: str) -> str:
        if value and not re.fullmatch(r"[a-z]{2}(-[a-z]+)?(,[a-z]{2}(-[a-z]+)?)*", value):
            raise _fault(
                "أسماء حزم مفصولة بفواصل بلا فراغات، مثل sa,ae-difc",
                "names of rule packs with commas and no spaces, such as sa,ae-difc",
            )
        return value

    @field_validator("signing_key")
    @classmethod
    def _signing_key(cls, value: str) -> str:
        if not _RUN_ID.fullmatch(value):
            raise _fault(
                "اسم مفتاح بحروف لاتينية صغيرة وأرقام، مثل operator",
                "the name of a key in lower-case Latin letters and digits, such as operator",
            )
        return value

    @field_validator("retention_until")
    @classmethod
    def _retention_until(cls, value: str) -> str:
        if value:
            try:
                if (
                    len(value) != len("YYYY-MM-DD") or "W" in value
                ):  # other forms of ISO 8601 are accepted too
                    raise ValueError(value)
                date.fromisoformat(value)
            except ValueError:
                raise _fault("تاريخ بالشكل 2031-12-31", "a date such as 2031-12-31") from None
        return value

    @field_validator("task")
    @classmethod
    def _task(cls, value: str) -> str:
        from grpo_lib.tasks import TASKS

        if value not in TASKS:
            known = "، ".join(TASKS)
            raise _fault(f"المهام المتاحة: {known}", f"known tasks: {', '.join(TASKS)}")
        return value

    @field_validator("model")
    @classmethod
    def _model(cls, value: str) -> str:
        if value == TEACHING_MODEL or (Path(value) / "config.json").is_file():
            return value
        # A name whose first part is a folder here was meant as a path.
        if _HUB_ID.fullmatch(value) and not Path(value).parent.exists():
            from huggingface_hub import constants, try_to_load_from_cache

            if not constants.HF_HUB_OFFLINE or isinstance(try_to_load_from_cache(value, "config.json"), str):
                return value
            raise _fault(
                "هذا المعرّف ليس في الذاكرة المحلية والوضع غير متصل (HF_HUB_OFFLINE)؛ نزّله أولًا أو أعط مسارًا محليًا",
                "not in the local cache while HF_HUB_OFFLINE is set; download it first, or give a local path",
            )
        raise _fault(
            "لا يوجد مجلد نموذج هنا (لا config.json فيه)؛ صحّح المسار أو اكتب teaching",
            "no model folder here (no config.json in it); correct the path, or write teaching",
        )

    @model_validator(mode="after")
    def _combinations(self, info: ValidationInfo) -> RunSettings:
        # Fields at fault themselves stand here at their defaults, which nobody gave: no combination is held against them.
        faulty: set[str] = (info.context or {}).get("faulty", set())
        checks = (
            (
                {"port_first", "port_last"},
                self.port_last < self.port_first,
                "port_last أصغر من port_first؛ بدّلهما",
                "port_last is below port_first; exchange them",
            ),
            (
                {"deadline_s", "heartbeat_s"},
                self.deadline_s < 3 * self.heartbeat_s,
                "deadline_s يجب ألا تقل عن ثلاثة أضعاف heartbeat_s",
                "deadline_s must be at least three times heartbeat_s",
            ),
            (
                {"groups_per_lease", "prompts_per_step", "max_staleness"},
                self.groups_per_lease > self.prompts_per_step * (self.max_staleness + 1),
                "groups_per_lease أكبر مما يسمح به حد التأخر، فلن يُعطى أي عمل؛ اجعله على الأكثر "
                "prompts_per_step × (max_staleness + 1)",
                "groups_per_lease exceeds what the staleness bound admits, so no work would ever be given; "
                "keep it ≤ prompts_per_step × (max_staleness + 1)",
            ),
            (
                {"data_class", "task"},
                self.data_class not in ("", "synthetic") and self.task == "arithmetic",
                "مهمة arithmetic تولّد بيانات اصطناعية؛ data_class يجب أن يكون synthetic",
                "the arithmetic task generates synthetic data; data_class must be synthetic",
            ),
        )
        faults = [(ar, en) for fields, wrong, ar, en in checks if wrong and not fields & faulty]
        if faults:
            raise _fault(*("\n  • ".join(texts) for texts in zip(*faults, strict=True)))
        return self

    @property
    def run_dir(self) -> Path:
        return Path(self.runs_dir) / self.run_id

    @property
    def samples_per_step(self) -> int:
        return self.prompts_per_step * self.num_generations


def new_run_id() -> str:
    """A fresh run id: UTC time and four random hexadecimal digits."""
    return f"run-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def load(values: dict[str, Any]) -> RunSettings:
    """Validate `values` into `RunSettings`; an empty `run_id` becomes a fresh one.

    Raises:
        WrongInput: lists every fault at once, in both languages. Nothing has been written.
    """
    faults: list[dict[str, Any]] = []
    attempt, faulty = dict(values), set()
    settings = None
    # Combination checks run only when every field is sound, so faulty fields are set aside and the rest tried again.
    while settings is None:
        try:
            settings = RunSettings.model_validate(attempt, context={"faulty": faulty})
        except ValidationError as error:
            found = error.errors(include_url=False)
            faults.extend(found)
            bad = {fault["loc"][0] for fault in found if fault["loc"]}
            if not bad:
                break
            faulty |= bad
            attempt = {name: value for name, value in attempt.items() if name not in bad}
    if faults:
        known = list(RunSettings.model_fields)
        raise WrongInput(
            ar="معاملات غير صحيحة:\n" + "\n".join(f"  • {describe(fault, known)[0]}" for fault in faults),
            en="Wrong parameters:\n" + "\n".join(f"  • {describe(fault, known)[1]}" for fault in faults),
        )
    return settings if settings.run_id else settings.model_copy(update={"run_id": new_run_id()})


def read(path: Path) -> RunSettings:
    """Settings stored in a run folder.

    Raises:
        WrongInput: the file is damaged, or holds what this version does not accept.
    """
    try:
        values = dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise WrongInput(
            ar=f"تعذّرت قراءة {isolate(path.name)} في مجلد التشغيل {isolate(path.parent.name)}: {isolate(error)}. "
            "استعد الملف من نسخة، أو اختر run_id جديدًا.",
            en=f"{path.name} in run folder {path.parent.name} cannot be read: {error}. "
            "Restore the file from a copy, or choose a new run_id.",
        ) from None
    return load(values)
