"""Speed, judged side by side in one run: `make bench`. Nothing here is a test."""
