"""Carries a migration out: plan, backfill, verify, contract, and the whole way back."""
