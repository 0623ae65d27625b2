"""An operator's program before compactions: `before.py FILE go|cancel|veto|supply`. It keeps in FILE what it read."""

import json
import sys

data = json.load(sys.stdin)
with open(sys.argv[1], "w", encoding="utf-8") as file:
    json.dump(data, file)
assert data["event"] == "before_compact"
told = [
    data["reason"],
    data["trigger"],
    data["sessionId"],
    data["sessionFile"],
    data["model"],
    data["instructions"],
    data["tokensBefore"] - data["expectedTokensAfter"],
    data["messagesToSummarise"],
    data["firstKeptEntryId"],
    data["isSplitTurn"],
]
if sys.argv[2] == "cancel":
    print(json.dumps({"cancel": True, "reason": f"not {told[0]} by {told[1]}"}))
elif sys.argv[2] == "veto":
    print(f"not {told[0]} by {told[1]}", file=sys.stderr)
    sys.exit(2)
elif sys.argv[2] == "supply":
    print(json.dumps({"summary": "## Goal\nWritten by the operator's program.\n\n## Next Steps\n1. Go on."}))
