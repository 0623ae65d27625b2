"""What code in a cell can reach: a policy, and the means of the operating system that enforce it."""
