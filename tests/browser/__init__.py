"""The page as a person sees it: in a real Chromium, on answers of the test."""
