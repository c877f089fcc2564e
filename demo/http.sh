# To be sourced by run.sh: the same story over HTTP, with curl. Expects $folder, `sql`, screen.sh.

# ask METHOD PATH [BODY]: shows the request and the answer; $status and $answer are its two parts
ask() {
    local shown="curl -X $1 \$QUEEN_URL'$2'" arguments=(-sS --noproxy '*' --max-time 20 -X "$1" -w '\n%{http_code} %{time_total}')
    if [ $# -gt 2 ]; then
        shown+=" -d '$3'"
        arguments+=(-d "$3")
    fi
    printf '%s   %s%s\n' "$dim" "$shown" "$plain"
    answer=$(curl "${arguments[@]}" "$url$2" 2>&1) || failed "$answer"
    status=${answer##*$'\n'}
    took=$(awk -v s="${status#* }" 'BEGIN { printf "%.1f", s * 1000 }')
    status=${status%% *} answer=${answer%$'\n'*}
    if [ ${#answer} -gt 250 ]; then printf '     %s %s…\n' "$status" "${answer:0:250}"; else printf '     %s %s\n' "$status" "$answer"; fi
}

# field PATH: of the answer, in PostgreSQL's notation for paths
field() { sql -At -v body="$answer" -v path="$1" <<<"SELECT :'body'::jsonb #>> :'path'"; }

# answered WHAT EXPECTED GOT
answered() {
    [ "$3" = "$2" ] || failed "$1: expected '$2', got '$3'"
    passed "$1"
}

# settle STATUS [ERROR]: acknowledges the message of the last pop
settle() {
    local key body='{'
    for key in transactionId partitionId leaseId consumerGroup; do
        body+="\"$key\":\"$(field "{messages,0,$key}")\","
    done
    ask POST /api/v1/ack "$body\"status\":\"$1\"${2:+,\"error\":\"$2\"}}"
}

url=$(start_sidecar "$folder" 6432 postgres 0)
say ""
say "The HTTP server is a program of its own, with a login that may call the JSON functions and nothing else:"
say "QUEEN_URL=$url"

heading "Over HTTP: push"
ask POST /api/v1/configure '{"queue":"mails","options":{"retryLimit":0}}' >/dev/null
ask POST /api/v1/push '{"items":[{"queue":"mails","partition":"ada","transactionId":"mail-1","payload":{"subject":"Hello"}}]}'
answered "201: it is committed" "201 queued" "$status $(field '{0,status}')"
check "it is where SQL looks" mail-1 "SELECT transaction_id FROM queen.messages('mails')"
ask POST /api/v1/push '{"items":[{"queue":"mails","partition":"ada","transactionId":"mail-1","payload":{"subject":"Hello"}}]}'
answered "the same once more is no second message" "201 duplicate" "$status $(field '{0,status}')"

heading "Over HTTP: pop and acknowledge"
ask GET '/api/v1/pop/queue/mails?consumerGroup=smtp&subscriptionMode=all'
answered "one message" "mail-1 1" "$(field '{messages,0,transactionId}') $(field '{messages,0,deliveryAttempt}')"
settle completed
answered "settled, and the lease is gone" "true true" "$(field '{0,success}') $(field '{0,leaseReleased}')"
ask GET '/api/v1/pop/queue/mails?consumerGroup=smtp'
answered "204: nothing more" 204 "$status"

heading "Over HTTP: a message that fails becomes a dead letter"
ask POST /api/v1/push '{"items":[{"queue":"mails","partition":"bob","transactionId":"mail-2","payload":{"subject":"?"}}]}'
ask GET '/api/v1/pop/queue/mails?consumerGroup=smtp'
settle failed 'no such mailbox'
answered "dead at once: its queue retries nothing" "true" "$(field '{0,dlq}')"
ask GET '/api/v1/dlq?queue=mails'
answered "listed, with what went wrong" "mail-2 no such mailbox" \
    "$(field '{messages,0,transactionId}') $(field '{messages,0,errorMessage}')"
ask POST "/api/v1/messages/$(field '{messages,0,partitionId}')/mail-2/retry"
answered "back in its queue" "200 moved" "$status $(field '{result}')"
ask GET '/api/v1/pop/queue/mails?consumerGroup=smtp'
settle completed
answered "delivered this time" true "$(field '{0,success}')"

heading "Over HTTP: a pop that waits, woken by a push in SQL"
waited=$(mktemp)
say "curl \$QUEEN_URL'/api/v1/pop/queue/mails?consumerGroup=smtp&wait=true&timeout=15000' &"
curl -sS --noproxy '*' --max-time 20 -o "$waited" -w '%{time_total}' \
    "$url/api/v1/pop/queue/mails?consumerGroup=smtp&wait=true&timeout=15000" >"$waited.time" &
waiting=$!
sleep 0.5
kill -0 "$waiting" 2>/dev/null || failed "the pop did not wait: $(cat "$waited")"
check "it waits, and holds no connection meanwhile" 0 \
    "SELECT count(*) FROM pg_stat_activity WHERE usename = 'queen_http' AND state = 'active' AND query LIKE '%pop%'"
run quiet <<'SQL'
BEGIN;
INSERT INTO shop_order VALUES (8, 'ada', 100);
SELECT queen.push('mails', '{"subject": "Your order 8"}', 'ada', 'mail-3');
COMMIT;
SQL
wait "$waiting"
answer=$(cat "$waited") took=''
printf '     after %s s: %s…\n' "$(cat "$waited.time")" "${answer:0:250}"
rm -f "$waited" "$waited.time"
answered "answered by the commit" mail-3 "$(field '{messages,0,transactionId}')"
settle completed
stop_sidecar "$folder"
