// Has nothing of its own: a target must compile something for its headers to be precompiled.
