"""Audits: how much a mechanism leaks at least, and whether its noise is the noise that is booked."""

from airfl.analysis.audit.found import Audit, View
from airfl.analysis.audit.one_run import audit_one_run
from airfl.analysis.audit.run import audit_linear, audit_run, audit_steps
from airfl.analysis.audit.selftest import SelfTest, self_test

__all__ = ["Audit", "SelfTest", "View", "audit_linear", "audit_one_run", "audit_run", "audit_steps", "self_test"]
