"""Pure codecs of the shapes in the seed systems; no Redis here."""
