"""What a model in Python needs of uncork, an inference server that batches by itself: `uncork serve app.py:Class`.

A model is a class with `__call__(rows)`, which answers a batch; docs/python.md tells the rest. Nothing here is needed for that:
`BadInput` is for refusing a row in words, `Answer` for an answer that is not JSON, `Request` is what `preprocess` gets.
"""

from __future__ import annotations

import json
import operator
from typing import Any

__all__ = ["Answer", "BadInput", "Request", "__version__"]
__version__ = "0.1.0"


class BadInput(ValueError):
    """The caller's input is wrong: it is answered 400 with these words.

    Raised for a batch, it says that some row is bad; `row` says which, counted from 0. Without `row`, uncork runs smaller batches
    to find out. As an element of the answers it refuses that row alone.
    """

    def __init__(self, message: object, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


class Answer:
    """An answer of any kind: bytes as they are, a text, or what JSON can say; a status and a content type of its own.

    A status is one of 200 to 299 or 400 to 599. The caller gets body and type as they are with each of them. Others are refused here:
    they say that something else follows, or need headers that an answer does not have.
    """

    __slots__ = ("body", "content_type", "status")

    def __init__(self, body: Any, content_type: str | None = None, status: int = 200) -> None:
        try:
            number = operator.index(status)
        except TypeError:
            number = 0
        if not (200 <= number < 300 or 400 <= number < 600):
            raise ValueError(f"an Answer's status is a whole number from 200 to 299 or from 400 to 599, and not {status!r}")
        if content_type is not None and not (isinstance(content_type, str) and content_type.isascii() and content_type.isprintable()):
            raise ValueError(f"an Answer's content_type is a text of printable ASCII, such as 'image/png', and not {content_type!r}")
        self.body = body
        self.content_type = content_type
        self.status = number


class Request:
    """One request as it came: what `preprocess` gets."""

    __slots__ = ("_head", "body")

    def __init__(self, body: bytes, head: dict[str, Any]) -> None:
        self.body = body
        """The body, as it came."""
        self._head = head

    @property
    def content_type(self) -> str:
        """The request's content type; empty where it had none."""
        kind: str = self._head.get("content_type", "")
        return kind

    @property
    def query(self) -> dict[str, str]:
        """The query's parameters; of one that is given twice the last."""
        from urllib.parse import parse_qsl

        return dict(parse_qsl(self._head.get("query", ""), keep_blank_values=True))

    @property
    def query_all(self) -> dict[str, list[str]]:
        """The query's parameters, each with all that it was given, in their order: `?ids=1&ids=2` is `{"ids": ["1", "2"]}`."""
        from urllib.parse import parse_qs

        return parse_qs(self._head.get("query", ""), keep_blank_values=True)

    @property
    def request_id(self) -> str:
        """The request's name, as in the log and in the answer's `x-request-id`."""
        name: str = self._head.get("request_id", "")
        return name

    @property
    def headers(self) -> dict[str, str]:
        """The request's headers, their names in lower case; those that are given twice joined by a comma."""
        headers: dict[str, str] = {}
        for name, value in self._head.get("headers", ()):
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        return headers

    def json(self) -> Any:
        """The body, parsed as JSON; `BadInput` where it is none."""
        return parse(self.body)


def _no_number(word: str) -> Any:
    raise BadInput(f"the body is not JSON: {word} is no JSON")


_decode = json.JSONDecoder(parse_constant=_no_number).decode


def parse(body: bytes | memoryview) -> Any:
    """A body as JSON; `BadInput` says where it is none."""
    try:
        return _decode(str(body, "utf-8"))
    except RecursionError:
        raise BadInput("the body is JSON that nests too deeply") from None
    except BadInput:
        raise
    except UnicodeDecodeError as error:
        raise BadInput(f"the body is not JSON: it is not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise BadInput(f"the body is not JSON: see {where}" if body else "the body is empty; this model takes JSON") from None
    except ValueError:
        raise BadInput("the body is JSON with a number of more digits than are read") from None
