"""One file per published data set; each reads the files that its authors publish."""
