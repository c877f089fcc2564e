-- Whether this database has the extension, and whether this login may call it: version, is the function there, may it
-- be called. Asks the catalogs only, which everybody may read.
SELECT e.extversion,
       p.oid IS NOT NULL,
       coalesce(has_schema_privilege(e.extnamespace, 'USAGE') AND has_function_privilege(p.oid, 'EXECUTE'), false)
  FROM (VALUES (1)) one
  LEFT JOIN pg_catalog.pg_extension e ON e.extname = 'queen'
  LEFT JOIN LATERAL (SELECT f.oid
                       FROM pg_catalog.pg_proc f
                      WHERE f.pronamespace = e.extnamespace AND f.proname = 'push_batch_json'
                      LIMIT 1) p ON true
