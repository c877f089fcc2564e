-- GET /api/v1/analytics/postgres-stats: from the statistics that every login may read. Of running statements only the
-- state is told: their texts may hold what others keep in them.
WITH own AS (
    SELECT s.relid, s.relname, s.heap_blks_hit, s.heap_blks_read, coalesce(s.idx_blks_hit, 0) AS idx_blks_hit,
           coalesce(s.idx_blks_read, 0) AS idx_blks_read
      FROM pg_catalog.pg_statio_user_tables s
     WHERE s.schemaname = 'queen'),
cache AS (
    SELECT coalesce(sum(heap_blks_hit), 0)::bigint AS table_hit, coalesce(sum(heap_blks_read), 0)::bigint AS table_read,
           coalesce(sum(idx_blks_hit), 0)::bigint AS index_hit, coalesce(sum(idx_blks_read), 0)::bigint AS index_read
      FROM own)
SELECT json_build_object(
           'timestamp', to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
           'database', current_database(),
           'databaseCache', (
               SELECT json_build_object(
                          'database', d.datname,
                          'cacheHits', d.blks_hit,
                          'diskReads', d.blks_read,
                          'cacheHitRatio', coalesce(round(100.0 * d.blks_hit / nullif(d.blks_hit + d.blks_read, 0), 2), 0))
                 FROM pg_catalog.pg_stat_database d
                WHERE d.datname = current_database()),
           'cacheSummary', json_build_object(
               'tables', json_build_object(
                   'cacheHits', c.table_hit,
                   'diskReads', c.table_read,
                   'cacheHitRatio', coalesce(round(100.0 * c.table_hit / nullif(c.table_hit + c.table_read, 0), 2), 0)),
               'indexes', json_build_object(
                   'cacheHits', c.index_hit,
                   'diskReads', c.index_read,
                   'cacheHitRatio', coalesce(round(100.0 * c.index_hit / nullif(c.index_hit + c.index_read, 0), 2), 0))),
           'tableCache', (
               SELECT coalesce(json_agg(json_build_object(
                          'table', o.relname,
                          'cacheHits', o.heap_blks_hit,
                          'diskReads', o.heap_blks_read,
                          'cacheHitRatio', coalesce(round(100.0 * o.heap_blks_hit
                                                          / nullif(o.heap_blks_hit + o.heap_blks_read, 0), 2), 0))
                          ORDER BY o.heap_blks_hit + o.heap_blks_read DESC, o.relname), '[]')
                 FROM own o),
           'indexCache', (
               SELECT coalesce(json_agg(json_build_object(
                          'table', i.relname,
                          'index', i.indexrelname,
                          'cacheHits', i.idx_blks_hit,
                          'diskReads', i.idx_blks_read,
                          'cacheHitRatio', coalesce(round(100.0 * i.idx_blks_hit
                                                          / nullif(i.idx_blks_hit + i.idx_blks_read, 0), 2), 0))
                          ORDER BY i.idx_blks_hit + i.idx_blks_read DESC, i.indexrelname), '[]')
                 FROM pg_catalog.pg_statio_user_indexes i
                WHERE i.schemaname = 'queen'),
           'activeQueries', (
               SELECT coalesce(json_agg(json_build_object(
                          'pid', a.pid,
                          'applicationName', a.application_name,
                          'state', a.state,
                          'waitEventType', a.wait_event_type,
                          'waitEvent', a.wait_event,
                          'durationMs', floor(1000 * extract(epoch FROM clock_timestamp() - a.query_start))::bigint)
                          ORDER BY a.query_start), '[]')
                 FROM pg_catalog.pg_stat_activity a
                WHERE a.datname = current_database() AND a.state <> 'idle' AND a.pid <> pg_backend_pid()),
           'tableSizes', (
               SELECT coalesce(json_agg(json_build_object(
                          'table', z.relname,
                          'totalBytes', z.total,
                          'tableBytes', z.heap,
                          'indexBytes', z.indexes,
                          'totalSize', pg_size_pretty(z.total)) ORDER BY z.total DESC, z.relname), '[]')
                 FROM (SELECT o.relname, pg_total_relation_size(o.relid) AS total, pg_table_size(o.relid) AS heap,
                              pg_indexes_size(o.relid) AS indexes
                         FROM own o) z))::text
  FROM cache c
