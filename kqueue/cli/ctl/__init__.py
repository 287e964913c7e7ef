"""The verbs of `kubectl kueue`: create, list, stop, resume, delete, and verbs that call kubectl.

One file per verb; `verbs` lists them and imports a verb's file when the verb is called.  `kinds` has the names and
short names of our kinds, `objects` prints objects in the format of `-o`, `discovery` finds kinds of other APIs.  This
room reads and writes objects and decides nothing.
"""
