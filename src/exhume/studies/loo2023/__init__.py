"""Studies of Loo et al. (2023), "Dataset Distillation Fixes Dataset Reconstruction Attacks".

============================================  ==================================
Figures                                       Module
============================================  ==================================
Figure 1                                      :mod:`~exhume.studies.loo2023.figure1`
Figures 2, 4, 5, S3, S5, S6                   :mod:`~exhume.studies.loo2023.figures2_4_5`
Figures 3, S2                                 :mod:`~exhume.studies.loo2023.figure3`
Figure 6                                      :mod:`~exhume.studies.loo2023.figure6`
Figure 7                                      :mod:`~exhume.studies.loo2023.figure7`
Figures 8, S4                                 :mod:`~exhume.studies.loo2023.figure8`
Figure 9                                      :mod:`~exhume.studies.loo2023.figure9`
Figure S1                                     :mod:`~exhume.studies.loo2023.figure_s1`
Table 1                                       :mod:`~exhume.studies.loo2023.table1`
============================================  ==================================

What the paper states about Figures 2 to 5 is in :mod:`~exhume.studies.loo2023.observations`; statements about Figures 6
to 9 stand in their modules.
"""
