"""The forms that a summary may have.

A *style* is a family: its prompts (`styles/NAME/*.md`), a form, and how a context is rebuilt. A *form* is how a summary
is written, read back and checked (headings, or tags). A *contract* is what the check demands of a form's parts. The
*format* is the part of the prompt that shows the form to the summariser. The *frame* is what the host puts round a
stored summary.
"""
