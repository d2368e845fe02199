"""The study of Runkel et al. (2024), "Training Data Reconstruction: Privacy due to Uncertainty?"."""
