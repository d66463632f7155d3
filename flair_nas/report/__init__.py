"""Reports: one HTML page on searches, tunings and trainings, read from their folders."""
