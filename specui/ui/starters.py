"""Prompts offered on an empty page. Their answers are long, so that the switch can be flipped in the middle of one.

Knows no gradio.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Starter:
    """One prompt: what the button says, and what is asked."""

    title: str
    hint: str
    prompt: str


STARTERS = (
    Starter(
        "Edit this text",
        "much is copied: prompt lookup shines",
        "Repeat the whole text below. Write lighthouse in place of lighthause and change nothing else.\n\n"
        "The lighthause stood at the end of the long pier, and the keeper of the lighthause lived in the small house "
        "beside it. Every evening the keeper closed the door of the small house, walked along the pier, climbed the "
        "stairs of the lighthause and lit the lamp. Then the keeper sat down at the table by the window and wrote the "
        "time in the grey book.\n\n"
        "On Monday the sea was calm. The keeper climbed the stairs of the lighthause, lit the lamp, sat down at the "
        "table by the window and wrote the time in the grey book. Three ships passed the end of the long pier, and the "
        "keeper wrote their names in the grey book.\n\n"
        "On Tuesday there was fog. The keeper climbed the stairs of the lighthause, lit the lamp, sat down at the "
        "table by the window and wrote the time in the grey book. No ship passed the end of the long pier, and the "
        "keeper rang the bell of the lighthause until the morning.\n\n"
        "On Wednesday the wind blew hard. The keeper climbed the stairs of the lighthause, but the lamp did not burn. "
        "The keeper walked back along the pier, took a new lamp from the small house, climbed the stairs of the "
        "lighthause again and lit the new lamp. Then the keeper sat down at the table by the window and wrote the time "
        "in the grey book. Two ships passed the end of the long pier, and the keeper wrote their names in the grey "
        "book.",
    ),
    Starter(
        "Explain",
        "plain prose: a draft model can help",
        "Explain at length, in six paragraphs, how a bicycle stays upright: what the rider does, what the front wheel "
        "does, what the turning wheels add, why it is harder when riding slowly, how a bend is ridden, and how one "
        "learns it.",
    ),
    Starter(
        "Write code",
        "regular text: try auto",
        "Write a Python module for a small library of books. It has a class Book with title, author, year and a flag "
        "whether it is lent, and the functions add_book, remove_book, find_by_author, find_by_title, lend_book, "
        "return_book and list_books. Give every function type hints and a docstring, and end with an example that "
        "uses them all.",
    ),
)
