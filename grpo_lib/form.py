"""A form in the report notebook for what only people know; papermill parameters of the same names do the same.

Where widgets are not shown (a printed notebook, a run from cron) nothing is missing: the parameters stand above it.
"""

from __future__ import annotations

import ipywidgets

from grpo_lib import drafts, statements
from grpo_lib.errors import WrongInput
from grpo_lib.runfolder import RunFolder
from grpo_lib.settings import RunSettings, read


def statements_form(run: RunFolder) -> ipywidgets.Widget:
    """One box per statement, filled with what is stated already; saving adds to the run and says what to do next."""
    stored, added = read(run.settings), statements.read(run)
    boxes = {}
    for name in drafts.STATED:
        field = RunSettings.model_fields[name]
        known = getattr(stored, name) or added.get(name, "")
        boxes[name] = ipywidgets.Text(
            value=known,
            disabled=bool(known),
            description=field.json_schema_extra["ar"],
            placeholder=field.description,
            style={"description_width": "16rem"},
            layout={"width": "46rem"},
        )
        boxes[name].layout.direction = "rtl"
    said = ipywidgets.Output()
    button = ipywidgets.Button(description="احفظ | Save", button_style="primary")

    def save(_: object) -> None:
        said.clear_output()
        with said:
            try:
                added = statements.record(run, {name: box.value for name, box in boxes.items()})
            except WrongInput as error:
                print(error)
                return
            print(
                "حُفظ. أعد تنفيذ خلية التقارير أدناه. | Saved. Run the report cell below again."
                if added
                else "لا جديد. | Nothing new."
            )

    button.on_click(save)
    return ipywidgets.VBox([*boxes.values(), button, said])
