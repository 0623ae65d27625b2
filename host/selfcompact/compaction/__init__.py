"""The compaction engine: from entries and budgets to the one record that replaces old history.

`planning` decides what would be done, `style` holds the forms, `offline` and `summary` write the text, `ahead` begins
it before it is needed, `commit` makes the record. Only `summary` asks a model; nothing here writes to a log but
`session_file`, which compacts a file that no session has open.
"""
