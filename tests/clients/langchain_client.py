"""LangChain's ChatOpenAI. Arguments: BASE_URL KEY."""
import sys

from langchain_openai import ChatOpenAI

chat = ChatOpenAI(base_url=sys.argv[1] + "/v1", api_key=sys.argv[2], model="tiny", temperature=0, max_tokens=12, max_retries=0)
answer = chat.invoke([("system", "Be brief."), ("user", "The capital of France?")])
assert answer.usage_metadata["output_tokens"] > 0
pieces = list(chat.stream("The capital of France?"))
assert "".join(p.content for p in pieces) == chat.invoke("The capital of France?").content
print("langchain ok")
