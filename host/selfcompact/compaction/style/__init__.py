"""The forms that a summary may have: prompts, the contract a reply is checked against, the frame it is shown in."""
