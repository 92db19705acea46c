"""What is measured: decoding methods, their drafters and schedulers."""
