"""Reading inputs for prediction: tables, text and images."""
