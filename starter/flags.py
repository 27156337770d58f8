"""Options that many commands take. Apart from what prints, which is used without the command line's parser, too."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from starter.output import Output

OutputOption = Annotated[Output, Parameter(name=["--output", "-o"], help="How to print what was found.")]
WatchOption = Annotated[bool, Parameter(negative="", help="Go on, and print it again whenever it has changed.")]
