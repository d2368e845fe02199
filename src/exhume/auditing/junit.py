"""The audit as JUnit XML, which CI systems can show."""

from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

from exhume.auditing.conditions import Condition
from exhume.core.storage import write_atomically
from exhume.evaluation.audit_verdict import verdict_of_audit
from exhume.evaluation.verdict import verdict_of_evaluation
from exhume.records import Audit

_NOT_XML = {code: None for code in range(32) if code not in (9, 10, 13)} | {0xFFFE: None, 0xFFFF: None}


def junit(audit: Audit, conditions: Mapping[Condition, bool]) -> bytes:
    """Return the audit as a test suite with a case per condition and per attack.

    A condition that is met is a failure. An attack that did not run is a skipped case, so that a pipeline shows what
    was not tested.
    """
    worst = verdict_of_audit(audit)
    suite = ElementTree.Element("testsuite", name="exhume audit")
    for condition, is_met in conditions.items():
        case = ElementTree.SubElement(suite, "testcase", classname="exhume.conditions", name=f"not {condition.text}")
        if is_met:
            failure = ElementTree.SubElement(case, "failure", message=_clean(worst.sentence), type="condition")
            failure.text = _clean(worst.detail)
    assessed = {one.attack: one for one in audit.assessments}
    for name in [*assessed, *(name for name in audit.evaluations if name not in assessed)]:
        case = ElementTree.SubElement(suite, "testcase", classname="exhume.attacks", name=name)
        evaluation = audit.evaluations.get(name)
        if evaluation is not None:
            case.set("time", f"{evaluation.found.seconds:.3f}")
            ElementTree.SubElement(case, "system-out").text = _clean(verdict_of_evaluation(evaluation).sentence)
        else:
            one = assessed[name]
            why = " ".join([*one.reasons, *([f"{one.fate.capitalize()}."] if one.fate else [])]) or "Not run."
            ElementTree.SubElement(case, "skipped", message=_clean(why))
    for name, tag in (("tests", "testcase"), ("failures", "failure"), ("skipped", "skipped")):
        suite.set(name, str(len(list(suite.iter(tag)))))
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites)
    written: bytes = ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return written


def write_junit(path: Path, audit: Audit, conditions: Mapping[Condition, bool]) -> None:
    """Write the audit as JUnit XML, atomically."""
    write_atomically(path, junit(audit, conditions) + b"\n")


def _clean(text: str) -> str:
    """Remove characters that XML does not allow."""
    return text.translate(_NOT_XML)
