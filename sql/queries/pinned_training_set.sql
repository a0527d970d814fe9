-- The same at a tag, so that every run sees the same rows.
SELECT image, kind AS label FROM points AT (TAG => 'v1') WHERE note IS NOT NULL
