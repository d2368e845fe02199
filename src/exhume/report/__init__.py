"""Reports: an audit for people, as figures and as one page that opens offline."""
