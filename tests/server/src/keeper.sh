# Started with the program and the arguments of the server.
children() { cat "/proc/$server/task/$server/children"; }
"$0" "$@" > /dev/null & server=$!
while read -r wanted; do
    case $wanted in
        crash) kill -QUIT "$server"; wait "$server"; server= ;;
        start) "$0" "$@" > /dev/null & server=$! ;;
        pause) kill -STOP "$server"; kill -STOP $(children) ;;
        resume) kill -CONT $(children); kill -CONT "$server" ;;
    esac
    echo "$wanted"
done
if [ -n "$server" ]; then
    kill -QUIT "$server"
    # A server that is paused ends when it goes on.
    kill -CONT "$server" $(children)
    wait "$server"
fi
rm -rf "$EVERTURN_FOLDER"
