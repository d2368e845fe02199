"""Load templates of pages: strict, with automatic escaping, a shared style sheet, and light and dark colours."""

from importlib.resources import files

import jinja2
from markupsafe import Markup

from exhume.report.charts import THEME


def load_template(package: str, name: str) -> jinja2.Template:
    """Return a template of ``package`` that can include ``page_head.html`` and uses the shared style and theme."""
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(one, ".") for one in (package, "exhume.report")]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.globals["style"] = Markup((files("exhume.report") / "page.css").read_text())
    environment.globals["theme"] = {variable: (light, dark) for light, (variable, dark) in THEME.items()}
    return environment.get_template(name)
