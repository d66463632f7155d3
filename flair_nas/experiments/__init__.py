"""Experiments of many runs: jobs, pools, ledger, tasks and statistics."""
