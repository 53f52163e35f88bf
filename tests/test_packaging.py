"""What is shipped: the wheel on its own, the pinned environment, and the notebooks as committed."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import nbformat
import papermill
import pytest
import yaml
from fixtures_run import write_run
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from grpo_lib.runfolder import file_sha256
from grpo_lib.settings import RunSettings

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
REPORTS = {
    f"{name}.{language}.html" for name in ("training-audit", "data-residency") for language in ("ar", "en")
}


def run(*command: object, cwd: Path, **changed: str) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin", "HOME": str(cwd), **changed},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# -------------------------------------------------------------------------------------------------- dependencies


def pins() -> dict[str, Version]:
    """Exact versions of constraints.txt by canonical name; any other kind of line is a failure."""
    found: dict[str, Version] = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        line = line.partition("#")[0].strip()
        if line:
            exact = re.fullmatch(r"([A-Za-z0-9._-]+)==([^\s;*]+)", line)
            assert exact, f"not an exact pin: {line}"
            name = canonicalize_name(exact[1])
            assert name not in found, f"pinned twice: {name}"
            found[name] = Version(exact[2])
    return found


def declared() -> list[Requirement]:
    """What pyproject asks for, extras included."""
    extras = PROJECT["project"]["optional-dependencies"].values()
    return [Requirement(text) for group in (PROJECT["project"]["dependencies"], *extras) for text in group]


def needed() -> list[Requirement]:
    """Everything that the declared dependencies ask for on this machine, as far as it is installed."""
    todo, seen, found = declared(), set(), []
    while todo:
        requirement = todo.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        found.append(requirement)
        if key in seen:
            continue
        seen.add(key)
        try:
            inner = importlib.metadata.requires(requirement.name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # an extra that is not installed here
        for text in inner:
            one = Requirement(text)
            extras = requirement.extras or {""}
            if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in extras):
                todo.append(one)
    return found


def test_constraints_pin_everything_that_is_needed() -> None:
    pinned = pins()
    # Accelerator libraries come with a GPU build of torch and follow its version; the tested build is for CPU.
    follows_torch = re.compile("nvidia-|cuda-|triton")
    missing = {
        name
        for requirement in needed()
        if (name := canonicalize_name(requirement.name)) not in pinned and not follows_torch.match(name)
    }
    assert missing == set()


def test_constraints_satisfy_every_requirement() -> None:
    pinned = pins()
    broken = [
        f"{requirement} but {pinned[name]} is pinned"
        for requirement in needed()
        if (name := canonicalize_name(requirement.name)) in pinned
        and not requirement.specifier.contains(pinned[name], prereleases=True)
    ]
    assert broken == []


def test_what_is_installed_here_is_what_is_pinned() -> None:
    """Otherwise the suite would pass with versions that nobody else gets."""
    differ = {}
    for name, version in pins().items():
        try:
            installed = Version(importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            continue  # of an extra, or of another system
        if Version(installed.public) != version:
            differ[name] = f"{installed} instead of {version}"
    assert differ == {}


def test_what_the_code_imports_is_declared() -> None:
    """A module that comes along with another package by chance may be gone with its next version."""
    provided = importlib.metadata.packages_distributions()
    names = {canonicalize_name(requirement.name) for requirement in declared()}
    files = [*ROOT.glob("grpo_lib/**/*.py"), *ROOT.glob("compliance/*.py"), *ROOT.glob("benchmarks/**/*.py")]
    strangers: dict[str, set[str]] = {}
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                modules = [node.module]
            for module in {module.partition(".")[0] for module in modules}:
                if module in sys.stdlib_module_names or module not in provided:
                    continue
                owners = {canonicalize_name(name) for name in provided[module]} | {canonicalize_name(module)}
                if not owners & (names | {"grpo-lib"}):
                    strangers.setdefault(module, set()).add(str(path.relative_to(ROOT)))
    assert strangers == {}


def test_environment_yml_says_nothing_of_its_own() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    assert environment["name"] == PROJECT["project"]["name"]
    plain = [entry for entry in environment["dependencies"] if isinstance(entry, str)]
    (pip,) = [entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict)]
    for entry in plain:
        name, _, version = entry.partition("=")
        assert name in ("python", "pip"), f"{entry} belongs into pyproject and constraints"
        if name == "python":
            asked = Requirement(f"python{PROJECT['project']['requires-python']}")
            assert asked.specifier.contains(Version(version))
    pinned, extras = pins(), PROJECT["project"]["optional-dependencies"]
    for entry in pip:
        editable = re.fullmatch(r"-e \.(?:\[([\w,-]+)\])?", entry)
        if entry == "-c constraints.txt" or editable:
            assert not editable or set((editable[1] or "dev").split(",")) <= set(extras)
            continue
        one = Requirement(entry)
        assert str(one.specifier) == f"=={pinned[canonicalize_name(one.name)]}", entry
    assert "-c constraints.txt" in pip


# --------------------------------------------------------------------------------------------------------- wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that the working tree gets no build folder."""
    root = tmp_path_factory.mktemp("wheel")
    source = root / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in PROJECT["tool"]["setuptools"]["packages"]:
        if "." not in name:
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    (build_tool,) = (Requirement(text) for text in PROJECT["build-system"]["requires"])
    try:
        here = build_tool.specifier.contains(importlib.metadata.version(build_tool.name))
    except importlib.metadata.PackageNotFoundError:
        here = False
    # Without a network where this environment can build; else pip fetches the build tool.
    options = ["--no-build-isolation"] if here else []
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    run(*pip, "wheel", "--no-deps", *options, "--wheel-dir", root / "dist", source, cwd=root)
    (built,) = (root / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and nothing else in it."""
    target = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    run(*pip, "install", "--no-deps", "--no-index", "--target", target, wheel, cwd=target.parent)
    return target


def test_the_wheel_holds_every_file_of_its_packages_and_no_other(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        licences = {Path(name).name for name in archive.namelist() if "/licenses/" in name}
    tracked = {
        str(path.relative_to(ROOT))
        for package in ("grpo_lib", "compliance")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert held == tracked
    assert {"LICENSE", "OFL.txt"} <= licences


def test_the_wheel_alone_builds_the_reports(installed: Path, tmp_path: Path) -> None:
    run_dir = write_run(tmp_path / "runs")
    here = {"PYTHONPATH": str(installed), "PYTHONDONTWRITEBYTECODE": "1"}
    origin = run(
        sys.executable,
        "-c",
        "import grpo_lib, compliance; print(grpo_lib.__file__, compliance.__file__)",
        cwd=tmp_path,
        **here,
    )
    assert all(Path(file).is_relative_to(installed) for file in origin.split()), origin
    before = {path: file_sha256(path) for path in installed.rglob("*") if path.is_file()}
    shown = run(sys.executable, "-m", "grpo_lib.report", run_dir, cwd=tmp_path, **here)
    reports = {path.name for path in (run_dir / "reports").glob("*.html")}
    assert reports == REPORTS
    assert all(name in shown for name in REPORTS)
    assert all("<svg" in p.read_text(encoding="utf-8") for p in (run_dir / "reports").glob("training-*.html"))
    assert {p: file_sha256(p) for p in installed.rglob("*") if p.is_file()} == before, "it only reads there"


def test_the_wheel_brings_its_teaching_model(installed: Path, tmp_path: Path) -> None:
    code = "from grpo_lib.teaching_model import teaching_model_path as p; print(p())"
    place = Path(run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(installed)).strip())
    assert place.is_relative_to(installed)
    weights = place / "model.safetensors"
    assert file_sha256(weights) == file_sha256(
        ROOT / "grpo_lib" / "assets" / "teaching_model" / "model.safetensors"
    )
    assert weights.stat().st_size <= 8_000_000
    assert (place / "README.md").is_file()


# ----------------------------------------------------------------------------------------------------- notebooks


def parameters(name: str) -> dict[str, dict[str, str]]:
    return papermill.inspect_notebook(str(ROOT / "notebooks" / f"production-{name}.ipynb"))


def test_parameters_of_the_training_notebook_are_the_run_settings() -> None:
    seen, fields = parameters("train"), RunSettings.model_fields
    assert list(seen) == list(fields)
    types = {bool: "bool", int: "int", float: "float", str: "str"}
    for name, one in seen.items():
        default = ast.literal_eval(one["default"])
        assert (default, type(default)) == (fields[name].default, type(fields[name].default)), name
        assert one["inferred_type_name"] == types[type(default)], name
        assert one["help"] == fields[name].json_schema_extra["ar"], name


def test_parameters_of_the_report_notebook_are_among_the_run_settings() -> None:
    seen = parameters("report")
    assert list(seen) == [
        "run_id",
        "runs_dir",
        "organisation",
        "responsible",
        "purpose",
        "country",
        "retention_until",
    ]
    for name, one in seen.items():
        assert ast.literal_eval(one["default"]) == RunSettings.model_fields[name].default


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_committed_notebooks_are_stripped(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert set(notebook.metadata) <= {"kernelspec", "language_info"}
    assert set(notebook.metadata.language_info) <= {"name"}, "no version of somebody's Python"
    for cell in notebook.cells:
        assert set(cell.metadata) <= {"tags"}
        if cell.cell_type == "code":
            assert cell.outputs == [] and cell.execution_count is None
