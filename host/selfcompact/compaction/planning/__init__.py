"""What a compaction would do, decided without asking anybody: budgets, the live path, its ledger, the cut, the plan."""
