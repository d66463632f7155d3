"""Reports: one HTML page on searches, selections and trainings, read from their folders."""
