"""Reports: one HTML page on searches, selections, tables and trainings, read from their folders."""
