"""EC2's errors become ours, and none contains a credential."""

from __future__ import annotations

from importlib import import_module

import pytest

from domain.errors import ProviderError, Throttled
from providers.aws.errors import translate_error
from tests.cases import every_case


def client_error(code: str, status: int, message: str = "said EC2", **headers: str) -> Exception:
    answer = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": headers},
    }
    error: Exception = import_module("botocore.exceptions").ClientError(answer, "RunInstances")
    return error


# fmt: off
ERRORS = [
    ("RequestLimitExceeded",          503, True,  "Throttled"),
    ("Throttling",                    400, False, "Throttled"),
    ("Anything",                      429, True,  "Throttled"),
    ("InsufficientInstanceCapacity",  500, True,  "NoCapacity"),
    ("VcpuLimitExceeded",             400, True,  "NoCapacity"),
    ("InstanceLimitExceeded",         400, True,  "NoCapacity"),
    ("InternalError",                 500, True,  "UnknownOutcome"),
    ("InternalError",                 500, False, "Unavailable"),
    ("Unavailable",                   503, True,  "Unavailable"),
    ("ServiceUnavailable",            503, True,  "Unavailable"),
    ("",                              502, True,  "UnknownOutcome"),
    ("",                              200, False, "Unavailable"),
    ("ExpiredToken",                  400, True,  "Unavailable"),
    ("RequestExpired",                400, False, "Unavailable"),
    ("AuthFailure",                   401, True,  "Ec2CallRejected"),
    ("SignatureDoesNotMatch",         403, False, "Ec2CallRejected"),
    ("UnauthorizedOperation",         403, True,  "Ec2CallRejected"),
    ("InvalidAMIID.NotFound",         400, True,  "Ec2CallRejected"),
    ("UnsupportedOperation",          400, True,  "Ec2CallRejected"),
]
# fmt: on


@every_case(("code", "status", "changing", "kind"), ERRORS)
def test_ec2s_errors_in_our_words(code: str, status: int, changing: bool, kind: str) -> None:
    assert type(translate_error(client_error(code, status), changing)).__name__ == kind


def test_retry_after_is_heard_if_it_is_a_number() -> None:
    for header, heard in (("3", 3.0), ("soon", None)):
        error = translate_error(client_error("Throttling", 400, **{"retry-after": header}), changing=True)
        assert isinstance(error, Throttled)
        assert error.retry_after == heard


def test_a_bug_of_ours_is_not_an_error_of_ec2s() -> None:
    assert translate_error(KeyError("bug"), changing=True) is None


@pytest.mark.parametrize("code", ["AuthFailure", "SignatureDoesNotMatch", "AccessDenied", "ExpiredToken", "Odd"])
def test_no_error_tells_a_secret_or_an_access_key(code: str) -> None:
    told = "keys AKIAIOSFODNN7EXAMPLE and ASIAIOSFODNN7EXAMPLE, secret hush/hush+hush=, canonical string ..."
    error = translate_error(client_error(code, 403, told), changing=True, secrets=["hush/hush+hush="])
    assert isinstance(error, ProviderError)
    assert not any(word in str(error) for word in ("AKIA", "ASIA", "hush"))
