"""The engine's loop: batches of due policies are sensed, decided, bounded by budgets, applied and reported.

The way of a budget's grant, request → grant → loan: `tick.Ticker` decides for every policy as if it were alone, and
passes the outcomes to `grants.Sharing.share_batch`. `budget_members.BudgetMembers.requests` returns the requests of all
members, own and remote. The owner of the budget passes requests and loans to `rlscaler_core.arbiter.arbitrate`, which
returns grants and new loans. `Sharing._keep` stores the loans in `state.budgets`, `reporting.budgets` writes the grants
into the status of the budget, where other shards read them, and `Ticker` decides again where a grant binds.
"""
