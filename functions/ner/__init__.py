"""The ner function: named entities in texts, with exact offsets, and texts with them redacted."""
