-- The training set of training_set.sql, pinned to a tag, so that every run reads the same rows.
SELECT image, kind AS label FROM points AT (TAG => 'v1') WHERE note IS NOT NULL
