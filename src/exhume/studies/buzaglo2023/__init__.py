"""Studies of Haim et al. (2022) and Buzaglo et al. (2023): what final weights alone reveal."""
