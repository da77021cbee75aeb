"""The harness that runs all driver suites. Each module is one noun."""
