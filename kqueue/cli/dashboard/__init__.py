"""The controller's summaries for people: rows of tables, bars, and a screen that is refreshed."""
