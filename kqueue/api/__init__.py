"""What users write: models of our kinds, the foreign fields we read, and the names (labels, reasons) of the API."""
