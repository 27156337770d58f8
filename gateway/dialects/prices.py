"""The file of prices: what an hour of a VM costs, by cloud, region and type. Nothing is fetched."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from client.documents import UnreadableDocument, read_document
from domain.errors import Category, Refused
from domain.validation import refuse_validation_errors

Price = Annotated[float, Field(ge=0, le=1_000_000)]


class PriceList(BaseModel):
    """The file's content, such as `prices: {aws+eu-central-1+t3.nano: 0.006}`, in dollars."""

    model_config = ConfigDict(extra="forbid")

    prices: dict[str, Price]


def read_prices(file: Path) -> dict[str, float]:
    """Reads the file; Refused if it is wrong."""
    try:
        document = read_document(file)
    except UnreadableDocument as error:
        raise Refused(Category.INVALID, f"the price file {file}: {error}", "mend RATCHET_GATEWAY_PRICES") from error
    with refuse_validation_errors(f"the price file {file} is not valid", "mend RATCHET_GATEWAY_PRICES"):
        return PriceList.model_validate(document or {"prices": {}}).prices
