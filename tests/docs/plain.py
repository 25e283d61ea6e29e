"""Holds README and the documents to plain English: python3 tests/docs/plain.py

No sentence has more than 40 words, in running text, lists and cells of tables; README has 1,200 words at most, programs aside. A
program in the text and the name of a link each count as they are read: `one two` is one word.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_IN_SENTENCE = 40
MOST_IN_README = 1200


def pieces(text):
    """Line by line, what is read at one go: a paragraph, an item of a list, a cell of a table; with its first line's number."""
    start, lines = 0, []
    is_program = False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        is_fence = line.lstrip().startswith("```")
        is_program ^= is_fence
        is_row = line.startswith("|")
        if is_fence or is_program or is_row or not line.strip() or re.match(r"\s*([-*] |\d+\. |#|<!--|!\[)", line):
            if lines:
                yield start, " ".join(lines)
            lines = []
        if is_row:
            yield from ((number, cell) for cell in re.split(r"(?<!\\)\|", line))
        elif not is_fence and not is_program and line.strip() and not line.startswith(("#", "<!--", "![")):
            start = start if lines else number
            lines.append(re.sub(r"^\s*([-*]|\d+\.) ", "", line))


def sentences(text):
    text = re.sub(r"`[^`]*`", "`", text)  # a program in the text is a word
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.split(r"(?<=[.?!:])[)*_\"”]*\s+", text)


def words(text):
    return [word for word in text.split() if re.search(r"[\w`]", word)]


def main():
    wrong = 0
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    for path in pages:
        read = 0
        for number, piece in pieces(path.read_text()):
            for sentence in sentences(piece):
                count = len(words(sentence))
                read += count
                if count > MOST_IN_SENTENCE:
                    wrong += 1
                    print(f"{path.relative_to(ROOT)}:{number}: {count} words: {sentence.strip()}")
        if path.name == "README.md" and read > MOST_IN_README:
            wrong += 1
            print(f"README.md: {read} words; {MOST_IN_README} at most")
    print(f"{len(pages)} pages, {wrong} sentences or pages too long")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
