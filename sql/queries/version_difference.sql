-- The ids of the rows that were added after version 1.
SELECT new.id FROM points new LEFT JOIN points AT (VERSION => 1) old ON new.id = old.id WHERE old.id IS NULL ORDER BY new.id
