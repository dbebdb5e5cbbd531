"""The strings a prompt must survive byte for byte (field-cases, end)."""

STRINGS = [
    "a=b", "a, b", "{x}", "{x: 1}", "it's", 'say "hi"', "${oc.env:HOME}", "#tag", "~x", "!x", "a;b", "a&b", "<x>",
    "back\\slash", "tail\\", " lead", "trail ", "one\ntwo", "one\ttwo", "👩‍👩‍👧 🇫🇷", "日本語", "null", "1e3", "[1,2]",
]  # fmt: skip
