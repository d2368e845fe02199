"""Studies: measurements of the papers and our own, one command each.

Importing this package is cheap: a study's module is imported when the study is read from :data:`STUDIES`.
"""

from exhume.studies.catalogue import MAIN_PAPER, STUDIES, choose_studies

__all__ = ["MAIN_PAPER", "STUDIES", "choose_studies"]
