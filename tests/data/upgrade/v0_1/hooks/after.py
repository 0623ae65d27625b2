"""An operator's program after compactions: `after.py FILE`. It keeps in FILE what it read, and adds to the context."""

import json
import sys

data = json.load(sys.stdin)
with open(sys.argv[1], "w", encoding="utf-8") as file:
    json.dump(data, file)
assert data["event"] == "after_compact"
saved = data["tokensBefore"] - data["tokensAfter"]
ours = data["details"]["selfcompact"]
told = f"{len(data['summary'])} characters, offline {data['offline']}, from {data['firstKeptEntryId']} on, {ours['reason']}"
print(json.dumps({"context": f"The program saw {saved} tokens saved: {told}."}))
