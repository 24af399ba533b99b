import com.alibaba.fastjson.JSON;
import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.DLedgerServer;
import io.openmessaging.storage.dledger.MemberState;
import io.openmessaging.storage.dledger.entry.DLedgerEntry;
import io.openmessaging.storage.dledger.protocol.AppendEntryRequest;
import io.openmessaging.storage.dledger.protocol.AppendEntryResponse;
import io.openmessaging.storage.dledger.store.DLedgerStore;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * One real node of DLedger, a group by itself: LedgerNode GROUP ID ADDRESS DIRECTORY DATA_FILE_SIZE INDEX_FILE_SIZE.
 * Takes one JSON object a line, answers each with one: {"op": "state"}, {"op": "entries"}, {"op": "quit"},
 * {"op": "append", "bodies": [base64, ...]}, which waits until all are agreed on.
 */
public class LedgerNode {
    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        DLedgerConfig config = new DLedgerConfig();
        config.setGroup(arguments[0]);
        config.setSelfId(arguments[1]);
        config.setPeers(arguments[1] + "-" + arguments[2]);
        config.setStoreBaseDir(arguments[3]);
        config.setStoreType(DLedgerConfig.FILE);
        config.setMappedFileSizeForEntryData(Integer.parseInt(arguments[4]));
        config.setMappedFileSizeForEntryIndex(Integer.parseInt(arguments[5]));
        config.setEnableDiskForceClean(false);
        DLedgerServer server = new DLedgerServer(config);
        server.startup();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            Map<String, Object> answer = new LinkedHashMap<>();
            Map<String, Object> asked = JSON.parseObject(line);
            try {
                answer.put("ok", answer(server, config, asked));
            } catch (Throwable failure) {
                answer.put("error", failure.toString());
            }
            out.println(JSON.toJSONString(answer));
            out.flush();
            if ("quit".equals(asked.get("op"))) break;
        }
        Runtime.getRuntime().halt(0);
    }

    static Object answer(DLedgerServer server, DLedgerConfig config, Map<String, Object> asked) throws Exception {
        DLedgerStore store = server.getDLedgerStore();
        MemberState member = server.getMemberState();
        switch ((String) asked.get("op")) {
            case "entries": return entries(store);
            case "append": {
                List<CompletableFuture<AppendEntryResponse>> futures = new ArrayList<>();
                for (Object body : (List<?>) asked.get("bodies")) {
                    AppendEntryRequest request = new AppendEntryRequest();
                    request.setGroup(config.getGroup());
                    request.setRemoteId(config.getSelfId());
                    request.setBody(Base64.getDecoder().decode((String) body));
                    futures.add(server.handleAppend(request));
                }
                List<Object> codes = new ArrayList<>();
                for (CompletableFuture<AppendEntryResponse> each : futures) codes.add(each.get(30, TimeUnit.SECONDS).getCode());
                return codes;
            }
            case "quit": server.shutdown(); return true;
            default: {
                Map<String, Object> state = new LinkedHashMap<>();
                state.put("role", member.getRole().name());
                state.put("term", member.currTerm());
                state.put("begin", store.getLedgerBeginIndex());
                state.put("end", store.getLedgerEndIndex());
                state.put("committed", store.getCommittedIndex());
                return state;
            }
        }
    }

    static List<Object> entries(DLedgerStore store) {
        List<Object> found = new ArrayList<>();
        if (store.getLedgerEndIndex() < 0) return found;
        for (long index = store.getLedgerBeginIndex(); index <= store.getLedgerEndIndex(); index++) {
            DLedgerEntry entry = store.get(index);
            Map<String, Object> told = new LinkedHashMap<>();
            told.put("index", entry.getIndex());
            told.put("term", entry.getTerm());
            told.put("offset", entry.getPos());
            told.put("size", entry.getSize());
            told.put("body", Base64.getEncoder().encodeToString(entry.getBody()));
            found.add(told);
        }
        return found;
    }
}
