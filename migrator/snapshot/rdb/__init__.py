"""RDB files: loaded whole by a throw-away server that can read them, else read with a library as far as it sees."""
