"""A part of the page, with the name that the contents and links know it by."""

from dataclasses import dataclass

from tidegate.rollup.report.markup import Markup, element


@dataclass(frozen=True, slots=True)
class Section:
    key: str
    title: str
    body: Markup

    def html(self) -> Markup:
        return element("section", element("h2", self.title, id=self.key), self.body)
