"""Versions of TLS and cipher suites, as settings say."""

from __future__ import annotations

import ssl

import pytest

from tidemark.broker.config import ConfigError
from tidemark.broker.tls.cipher_suites import openssl_names
from tidemark.broker.tls.contexts import client_context, server_context
from tidemark.broker.tls.stores import read_stores


def context(stores, **settings: str) -> ssl.SSLContext:
    config = stores.config(**settings)
    return server_context(config, read_stores(config))


@pytest.mark.parametrize(
    ("settings", "oldest", "newest"),
    [
        ({}, "TLSv1_2", "TLSv1_3"),
        ({"ssl_protocol": "TLSv1.2"}, "TLSv1_2", "TLSv1_2"),
        ({"ssl_enabled_protocols": "TLSv1.3"}, "TLSv1_3", "TLSv1_3"),
        ({"ssl_enabled_protocols": "TLSv1.2"}, "TLSv1_2", "TLSv1_2"),
        ({"ssl_cipher_suites": "TLS_AES_256_GCM_SHA384"}, "TLSv1_3", "TLSv1_3"),
        ({"ssl_cipher_suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}, "TLSv1_2", "TLSv1_2"),
    ],
)
def test_versions_are_those_that_all_settings_allow(stores, settings, oldest, newest) -> None:
    made = context(stores, **settings)
    assert (made.minimum_version, made.maximum_version) == (ssl.TLSVersion[oldest], ssl.TLSVersion[newest])


def test_settings_that_leave_no_version_are_refused(stores) -> None:
    with pytest.raises(ConfigError, match="leaves no version"):
        context(stores, ssl_enabled_protocols="TLSv1.3", ssl_protocol="TLSv1.2")


def test_suites_of_tls_1_3_that_cannot_be_chosen_are_refused(stores) -> None:
    with pytest.raises(ConfigError, match="only the first ones"):
        context(stores, ssl_cipher_suites="TLS_AES_128_GCM_SHA256")


def test_unknown_suites_are_refused(stores) -> None:
    with pytest.raises(ConfigError, match="knows none of"):
        context(stores, ssl_cipher_suites="TLS_RSA_WITH_ROT13")


@pytest.mark.parametrize(
    ("standard", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_names_of_the_standards_become_those_of_openssl(standard, openssl) -> None:
    assert openssl_names([standard]) == [openssl]
    every = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    every.set_ciphers("ALL")
    assert openssl in {each["name"] for each in every.get_ciphers()}


@pytest.mark.parametrize(("algorithm", "checks"), [("https", True), ("", False)])
def test_nodes_check_each_others_host_names_unless_told_otherwise(stores, algorithm, checks) -> None:
    config = stores.config(ssl_endpoint_identification_algorithm=algorithm)
    assert client_context(config, read_stores(config)).check_hostname is checks
